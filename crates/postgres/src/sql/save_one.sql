-- The same for one stream, which is what a run that works alone needs: it costs the server half.
-- The answer is its number if it was where it was thought to be, and nothing otherwise.
WITH moved AS (
    UPDATE stream
    SET sequence = $5, clock = $6, token = $4, state = $7
    WHERE no = $1 AND sequence = $2 AND token = $3
    RETURNING no
)
INSERT INTO event (stream, sequence, bytes, hash)
SELECT m.no, e.sequence, e.bytes, e.hash
FROM moved m
CROSS JOIN unnest($8::bigint[], $9::bytea[], $10::bytea[]) AS e (sequence, bytes, hash)
RETURNING stream
