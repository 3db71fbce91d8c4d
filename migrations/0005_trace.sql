-- The place of the attempt that holds or held a request in its trace (W3C traceparent), so that the spans of waiters, replays and
-- takeovers link to it, on whatever replica and however long afterwards. Null where spans go nowhere; nothing is decided by it.
alter table requests add column trace text;
