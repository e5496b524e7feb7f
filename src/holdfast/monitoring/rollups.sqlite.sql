-- Figures: what each worker did, by the minute.
-- The same names in the same order as in rollups.postgres.sql. How they are written: engine/script.py.

-- name: roll_up
-- The runs that a worker ended in some minutes, as counted so far. Only this worker writes its rows.
INSERT INTO holdfast_rollups (minute, type, queue, worker_id, completed, failed, cancelled, retried, wait, run, waits, runs)
VALUES (:minute, :type, :queue, :worker_id, :completed, :failed, :cancelled, :retried, :wait, :run, :waits, :runs)
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
DELETE FROM holdfast_rollups
 WHERE minute = (SELECT MIN(minute) FROM holdfast_rollups WHERE minute < {now} - :kept);

-- name: series
-- The runs that ended in each minute of a period.
SELECT minute,
       SUM(completed), SUM(failed), SUM(cancelled), SUM(retried), SUM(wait), SUM(run)
  FROM holdfast_rollups
 WHERE minute >= :since
   AND minute < :until
   AND type = :type                  --? only_type
   AND queue = :queue                --? only_queue
 GROUP BY minute
 ORDER BY minute;

-- name: totals
-- The runs that ended in a period, by task and queue, with all histograms one after the other.
SELECT type, queue,
       SUM(completed), SUM(failed), SUM(cancelled), SUM(retried), SUM(wait), SUM(run),
       group_concat(waits, ','), group_concat(runs, ',')
  FROM holdfast_rollups
 WHERE minute >= :since
   AND minute < :until
 GROUP BY type, queue
 ORDER BY type, queue;

-- name: shares
-- How many jobs of each queue each worker finished since a time.
SELECT queue, worker_id,
       SUM(completed + failed + cancelled)
  FROM holdfast_rollups
 WHERE minute >= :since
 GROUP BY queue, worker_id
 ORDER BY queue, worker_id;

-- name: overdue
-- The job that should have been made pending the longest ago.
SELECT queue, type, run_at
  FROM holdfast_jobs INDEXED BY holdfast_jobs_due
 WHERE status IN ('scheduled', 'retrying')
   AND enabled
   AND run_at <= {now}
 ORDER BY run_at, id
 LIMIT 1;

-- name: probe
-- Write a row, to see whether the database can be written.
INSERT INTO holdfast_probes (name, at)
VALUES (:name, {now})
ON CONFLICT (name) DO UPDATE
   SET at = excluded.at;

-- name: next_pending
-- The first pending job of the next kind (queue, type, level, rank) in the order of the claim index.
SELECT queue, type, suspect, rank, run_at
  FROM holdfast_jobs INDEXED BY holdfast_jobs_claim
 WHERE status = 'pending'
   AND queue = :queue AND type = :type AND suspect = :suspect AND rank > :rank  --? next_rank
 ORDER BY rank, run_at, id                                                      --? next_rank
   AND queue = :queue AND type = :type AND suspect > :suspect                   --? next_level
 ORDER BY suspect, rank, run_at, id                                             --? next_level
   AND queue = :queue AND type > :type                                          --? next_type
 ORDER BY type, suspect, rank, run_at, id                                       --? next_type
   AND queue > :queue                                                           --? next_queue
 ORDER BY queue, type, suspect, rank, run_at, id                                --? next_queue
   AND queue = :queue AND type = :type AND suspect = :suspect AND rank > :rank  --? last_rank
 ORDER BY rank DESC, run_at DESC, id DESC                                       --? last_rank
 LIMIT 1;
