-- The streams of an append, locked in the order that is given, which is that of their names: so nobody
-- waits in a circle. Each is looked up in the index, however the tables have grown since the plan was
-- made.
SELECT s.kind, s.name, s.no, s.sequence, s.clock, s.token, s.state
FROM unnest($1::smallint[], $2::text[]) AS w (kind, name)
CROSS JOIN LATERAL (
    SELECT kind, name, no, sequence, clock, token, state
    FROM stream
    WHERE kind = w.kind AND name = w.name
    FOR UPDATE
) s
