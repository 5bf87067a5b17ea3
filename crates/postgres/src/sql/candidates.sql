-- Runs of one queue that may go on: highest priority first, then those that have waited longest.
SELECT stream
FROM claimable
WHERE queue = $1
    AND (cardinality($2::text[]) = 0 OR agent = ANY($2::text[]))
    AND ready_us <= COALESCE($3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY priority DESC, ready_us
LIMIT $4
FOR UPDATE SKIP LOCKED
