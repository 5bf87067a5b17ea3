-- Who holds them, and the time. A statement of its own behind the locks: it sees what whoever had
-- the lock before has committed.
SELECT t.now_us, h.no, h.token, h.holder, h.ready_us
FROM (SELECT COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now_us) t
LEFT JOIN (
    SELECT s.no, c.token, c.holder, c.ready_us
    FROM stream s
    JOIN unnest($1::smallint[], $2::text[]) AS w (kind, name) ON s.kind = w.kind AND s.name = w.name
    JOIN claimable c ON c.stream = s.no
) h ON true
