-- Events of many streams in one statement: each stream's all or none of them. The answer is added by
-- `save.rs`: which streams were where they were thought to be, or an error if one was not.
WITH moved AS (
    UPDATE stream s
    SET sequence = n.sequence, clock = n.clock, token = n.new_token, state = n.state
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[])
        AS n (no, expected, token, new_token, sequence, clock, state)
    WHERE s.no = ANY($1::bigint[]) AND s.no = n.no AND s.sequence = n.expected AND s.token = n.token
    RETURNING s.no
), added AS (
    INSERT INTO event (stream, sequence, bytes, hash)
    SELECT e.stream, e.sequence, e.bytes, e.hash
    FROM unnest($8::bigint[], $9::bigint[], $10::bytea[], $11::bytea[]) AS e (stream, sequence, bytes, hash)
    JOIN moved m ON m.no = e.stream
)
