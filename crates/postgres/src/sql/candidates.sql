-- Runs of one queue that may go on: highest priority first, then those that have waited longest.
-- From one agent and priority to the next in the index, and in each only over rows whose time has
-- come: those that wait for something else, or are of other agents, cost nothing. Of several agents
-- with the same priority, all of the one whose first run has waited longest come first.
WITH RECURSIVE every AS (
    (SELECT agent FROM claimable WHERE queue = $1 AND cardinality($2::text[]) = 0 ORDER BY agent LIMIT 1)
    UNION ALL
    SELECT (
        SELECT c.agent FROM claimable c
        WHERE c.queue = $1 AND c.agent > e.agent ORDER BY c.agent LIMIT 1
    )
    FROM every e WHERE e.agent IS NOT NULL
), wanted AS (
    SELECT agent FROM every WHERE agent IS NOT NULL
    UNION
    SELECT unnest($2::text[])
), part AS (
    SELECT w.agent, (
        SELECT c.priority FROM claimable c
        WHERE c.queue = $1 AND c.agent = w.agent ORDER BY c.priority DESC LIMIT 1
    ) AS priority
    FROM wanted w
    UNION ALL
    SELECT p.agent, (
        SELECT c.priority FROM claimable c
        WHERE c.queue = $1 AND c.agent = p.agent AND c.priority < p.priority
        ORDER BY c.priority DESC LIMIT 1
    )
    FROM part p WHERE p.priority IS NOT NULL
), now AS (
    SELECT COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS us
), ready AS (
    SELECT p.agent, p.priority, (
        SELECT min(c.ready_us) FROM claimable c
        WHERE c.queue = $1 AND c.agent = p.agent AND c.priority = p.priority
    ) AS first_us
    FROM part p WHERE p.priority IS NOT NULL
)
SELECT c.stream
FROM (
    SELECT agent, priority FROM ready
    WHERE first_us <= (SELECT us FROM now) ORDER BY priority DESC, first_us
) r
CROSS JOIN LATERAL (
    SELECT stream
    FROM claimable
    WHERE queue = $1 AND agent = r.agent AND priority = r.priority AND ready_us <= (SELECT us FROM now)
    ORDER BY ready_us
    LIMIT $4
    FOR UPDATE SKIP LOCKED
) c
LIMIT $4
