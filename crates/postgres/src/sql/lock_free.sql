-- Of these streams, those that nobody writes at the moment.
SELECT no, name FROM stream WHERE no = ANY($1) ORDER BY kind, name FOR UPDATE SKIP LOCKED
