-- The streams of an append, locked in the order of their names so that nobody waits in a circle.
SELECT s.kind, s.name, s.no, s.sequence, s.clock, s.token, s.state
FROM stream s
JOIN unnest($1::smallint[], $2::text[]) AS w (kind, name) ON s.kind = w.kind AND s.name = w.name
ORDER BY s.kind, s.name
FOR UPDATE OF s
