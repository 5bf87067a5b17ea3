-- The same for streams by their numbers.
SELECT t.now_us, h.stream, h.token, h.holder, h.ready_us
FROM (SELECT COALESCE($2::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now_us) t
LEFT JOIN (SELECT stream, token, holder, ready_us FROM claimable WHERE stream = ANY($1)) h ON true
