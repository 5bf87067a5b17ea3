-- Of these streams, those that nobody writes at the moment, locked.
SELECT kind, name, no, sequence, clock, token, state
FROM stream WHERE no = ANY($1) ORDER BY kind, name FOR UPDATE SKIP LOCKED
