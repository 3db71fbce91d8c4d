-- Two roles: an owner that migrates, and an application that reads and writes rows and can change nothing else. Run once, by a
-- superuser or a managed service's administrator, with psql 15 or newer:
--
--   OWNER_PASSWORD=… APP_PASSWORD=… psql -v ON_ERROR_STOP=1 -f roles.sql postgres://administrator@host/postgres

\getenv owner_password OWNER_PASSWORD
\getenv app_password APP_PASSWORD

create role ticket_ledger_owner login password :'owner_password';
create role ticket_ledger login password :'app_password';

-- An administrator that is no superuser may give away only what it is a member of.
grant ticket_ledger_owner to current_user;
-- From template0, because another template's encoding cannot be changed.
create database ticket_ledger owner ticket_ledger_owner encoding 'UTF8' template template0;
revoke all on database ticket_ledger from public;
grant connect on database ticket_ledger to ticket_ledger;

\connect ticket_ledger

-- Before PostgreSQL 15 everybody might make tables.
revoke create on schema public from public;
grant usage, create on schema public to ticket_ledger_owner;

-- For every table and sequence that a migration makes, now and later.
alter default privileges for role ticket_ledger_owner in schema public
    grant select, insert, update, delete on tables to ticket_ledger;
alter default privileges for role ticket_ledger_owner in schema public
    grant usage, select on sequences to ticket_ledger;
