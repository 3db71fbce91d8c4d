-- The earliest twin is one step into the index, however many there are: somebody who creates the same thing again and again
-- under new request_ids would else have every creation sort all of the last ten minutes'.
create index recent_creations_earliest on recent_creations (digest, settled_at);
drop index recent_creations_digest;
