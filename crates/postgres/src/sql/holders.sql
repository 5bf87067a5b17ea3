-- Who holds them, and the time. A statement of its own behind the locks: it sees what whoever had
-- the lock before has committed.
SELECT t.now_us, h.no, h.token, h.holder, h.ready_us
FROM (SELECT COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now_us) t
LEFT JOIN (
    SELECT s.no, c.token, c.holder, c.ready_us
    FROM unnest($1::smallint[], $2::text[]) AS w (kind, name)
    CROSS JOIN LATERAL (SELECT no FROM stream WHERE kind = w.kind AND name = w.name OFFSET 0) s
    CROSS JOIN LATERAL (
        SELECT token, holder, ready_us FROM claimable WHERE stream = s.no OFFSET 0
    ) c
) h ON true
