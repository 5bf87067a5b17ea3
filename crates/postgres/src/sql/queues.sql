-- The names of the queues: from one to the next in the index, not over all rows.
WITH RECURSIVE q AS (
    (SELECT queue FROM claimable ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT c.queue FROM claimable c WHERE c.queue > q.queue ORDER BY c.queue LIMIT 1)
    FROM q WHERE q.queue IS NOT NULL
)
SELECT queue FROM q WHERE queue IS NOT NULL
