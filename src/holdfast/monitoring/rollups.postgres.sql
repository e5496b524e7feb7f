-- Figures: what each worker did, by the minute.
-- The same names in the same order as in rollups.sqlite.sql. How they are written: engine/script.py.

-- name: roll_up
-- The runs that a worker ended in some minutes, as counted so far. Only this worker writes its rows.
INSERT INTO {schema}.rollups (minute, type, queue, worker_id, completed, failed, cancelled, retried, wait, run, waits, runs)
SELECT minute, type, queue, worker_id, completed, failed, cancelled, retried, wait, run, waits, runs
  FROM json_to_recordset(:batch::text::json)
    AS new (minute timestamptz, type text, queue text, worker_id text, completed bigint, failed bigint, cancelled bigint,
            retried bigint, wait double precision, run double precision, waits text, runs text)
ON CONFLICT (minute, type, queue, worker_id) DO UPDATE
   SET completed = excluded.completed,
       failed = excluded.failed,
       cancelled = excluded.cancelled,
       retried = excluded.retried,
       wait = excluded.wait,
       run = excluded.run,
       waits = excluded.waits,
       runs = excluded.runs;

-- name: prune_rollups
-- Delete the rows of the oldest minute, if it is older than figures are kept.
DELETE FROM {schema}.rollups
 WHERE minute = (SELECT minute
                   FROM {schema}.rollups
                  WHERE minute < {now} - :kept::bigint * interval '1 microsecond'
                  ORDER BY minute
                  LIMIT 1);

-- name: series
-- The runs that ended in each minute of a period.
SELECT minute,
       sum(completed)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(retried)::bigint, sum(wait), sum(run)
  FROM {schema}.rollups
 WHERE minute >= :since::text::timestamptz
   AND minute < :until::text::timestamptz
   AND type = :type::text            --? only_type
   AND queue = :queue::text          --? only_queue
 GROUP BY minute
 ORDER BY minute;

-- name: totals
-- The runs that ended in a period, by task and queue, with all histograms one after the other.
SELECT type, queue,
       sum(completed)::bigint, sum(failed)::bigint, sum(cancelled)::bigint, sum(retried)::bigint, sum(wait), sum(run),
       string_agg(waits, ','), string_agg(runs, ',')
  FROM {schema}.rollups
 WHERE minute >= :since::text::timestamptz
   AND minute < :until::text::timestamptz
 GROUP BY type, queue
 ORDER BY type, queue;

-- name: shares
-- How many jobs of each queue each worker finished since a time.
SELECT queue, worker_id,
       sum(completed + failed + cancelled)::bigint
  FROM {schema}.rollups
 WHERE minute >= :since::text::timestamptz
 GROUP BY queue, worker_id
 ORDER BY queue, worker_id;

-- name: overdue
-- The job that should have been made pending the longest ago.
SELECT queue, type, run_at
  FROM {schema}.jobs
 WHERE status IN ('scheduled', 'retrying')
   AND enabled
   AND run_at <= {now}
 ORDER BY run_at, id
 LIMIT 1;

-- name: probe
-- Write a row, to see whether the database can be written.
INSERT INTO {schema}.probes (name, at)
VALUES (:name::text, {now})
ON CONFLICT (name) DO UPDATE
   SET at = excluded.at;

-- name: next_pending
-- The first pending job of the next kind (queue, type, level, rank) in the order of the claim index.
-- (`AS due`: ORDER BY would take a column named run_at to be the text.)
SELECT queue, type, suspect, rank, run_at::text AS due
  FROM {schema}.jobs
 WHERE status = 'pending'
   AND (queue, type, suspect, rank) > (:queue::text, :type::text, :suspect::boolean, :rank::bigint)  --? next_by_columns
 ORDER BY queue, type, suspect, rank, run_at, id                                                     --? next_by_columns
   AND queue = :queue::text AND type = :type::text AND suspect = :suspect::boolean                   --? last_rank
   AND rank > :rank::bigint                                                                          --? last_rank
 ORDER BY rank DESC, run_at DESC, id DESC                                                            --? last_rank
 LIMIT 1;
