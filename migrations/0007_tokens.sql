-- Bearer tokens for scripts, by their names. What is kept is a hash: whoever reads this table can call as nobody.
--
-- A row is never deleted, so that a revoked name cannot be given to somebody else: requests and rows carry it as their principal.
create table tokens (
    name       text        collate "C" primary key,
    -- SHA-256 of the token, which is 256 random bits and so cannot be found by trying.
    hash       bytea       not null check (octet_length(hash) = 32),
    scopes     text[]      not null,
    -- For whom it speaks in place of itself: somebody whom an issuer knows by this subject.
    issuer     text        collate "C",
    subject    text        collate "C",
    issued_at  timestamptz not null,
    -- Null: never.
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint tokens_hash unique (hash),
    check ((issuer is null) = (subject is null))
);
