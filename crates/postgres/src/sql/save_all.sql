-- The same, with what follows from the events: lists, timers, when runs may go on, pieces of payloads.
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
), stored AS (
    INSERT INTO piece (hash, bytes, touched_us)
    SELECT p.hash, p.bytes, $14::bigint
    FROM unnest($12::bytea[], $13::bytea[]) AS p (hash, bytes)
    ORDER BY p.hash
    ON CONFLICT (hash) DO UPDATE SET touched_us = EXCLUDED.touched_us
    WHERE piece.touched_us < EXCLUDED.touched_us - 600000000
), listed AS (
    INSERT INTO run (stream, name, status, agent, attention, changed_us)
    SELECT r.stream, r.name, r.status, r.agent, r.attention, r.changed_us
    FROM unnest($15::bigint[], $16::text[], $17::smallint[], $18::text[], $19::boolean[], $20::bigint[])
        AS r (stream, name, status, agent, attention, changed_us)
    JOIN moved m ON m.no = r.stream
    ON CONFLICT (stream) DO UPDATE
    SET status = EXCLUDED.status, agent = EXCLUDED.agent, attention = EXCLUDED.attention,
        changed_us = EXCLUDED.changed_us
), set_timers AS (
    INSERT INTO timer (stream, id, due_us)
    SELECT t.stream, t.id, t.due_us
    FROM unnest($21::bigint[], $22::bytea[], $23::bigint[]) AS t (stream, id, due_us)
    JOIN moved m ON m.no = t.stream
    ON CONFLICT (stream, id) DO UPDATE SET due_us = EXCLUDED.due_us
), ended_timers AS (
    DELETE FROM timer t
    USING unnest($24::bigint[], $25::bytea[]) AS g (stream, id), moved m
    WHERE t.stream = ANY($24::bigint[]) AND t.stream = g.stream AND t.id = g.id AND m.no = g.stream
), new_claims AS (
    INSERT INTO claimable (stream, queue, priority, agent, ready_us)
    SELECT c.stream, c.queue, c.priority, c.agent, c.ready_us
    FROM unnest($26::bigint[], $27::text[], $28::integer[], $29::text[], $30::bigint[])
        AS c (stream, queue, priority, agent, ready_us)
    JOIN moved m ON m.no = c.stream
), set_claims AS (
    UPDATE claimable c
    SET ready_us = n.ready_us, token = n.token, holder = n.holder
    FROM unnest($31::bigint[], $32::bigint[], $33::bigint[], $34::text[]) AS n (stream, ready_us, token, holder), moved m
    WHERE c.stream = ANY($31::bigint[]) AND c.stream = n.stream AND m.no = n.stream
), ended_claims AS (
    DELETE FROM claimable c
    USING unnest($35::bigint[]) AS g (stream), moved m
    WHERE c.stream = ANY($35::bigint[]) AND c.stream = g.stream AND m.no = g.stream
)
