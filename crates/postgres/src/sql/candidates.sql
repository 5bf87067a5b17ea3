-- Runs of one queue that may go on: highest priority first, then those that have waited longest.
-- From one priority to the next in the index, and in each only over rows whose time has come: those
-- that wait for something else cost nothing.
WITH RECURSIVE p AS (
    (SELECT priority FROM claimable WHERE queue = $1 ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (
        SELECT c.priority FROM claimable c
        WHERE c.queue = $1 AND c.priority < p.priority ORDER BY c.priority DESC LIMIT 1
    )
    FROM p WHERE p.priority IS NOT NULL
)
SELECT c.stream
FROM p
CROSS JOIN LATERAL (
    SELECT stream
    FROM claimable
    WHERE queue = $1
        AND priority = p.priority
        AND ready_us <= (SELECT COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
        AND (cardinality($2::text[]) = 0 OR agent = ANY($2::text[]))
    ORDER BY ready_us
    LIMIT $4
    FOR UPDATE SKIP LOCKED
) c
WHERE p.priority IS NOT NULL
LIMIT $4
