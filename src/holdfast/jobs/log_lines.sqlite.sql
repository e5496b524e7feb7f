-- Lines of the logs of runs.
-- The same statements, in the same order, as in log_lines.postgres.sql. How they are written: engine/statements.py.

-- name: insert_logs
-- Keep lines of runs; those whose job is gone, and those that are there already, are left out.
INSERT INTO holdfast_logs (job_id, claim_no, attempt, line_no, at, level, text)
SELECT :id, :claim_no, :attempt, :line_no, :at, :level, :text
 WHERE EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = :id)
ON CONFLICT DO NOTHING;

-- name: prune_logs
-- Forget the lines of older runs of jobs: a recurring job never ends.
DELETE FROM holdfast_logs
 WHERE job_id = :id
   AND claim_no <= :claim_no;

-- name: logs
-- Lines of a job behind one of them, in order; or the last ones, backwards.
SELECT job_id, claim_no, attempt, line_no, at, level, text
  FROM holdfast_logs
 WHERE job_id = :id
   AND (claim_no, line_no) > (:claim_no, :line_no)
 ORDER BY claim_no, line_no              --? oldest
 ORDER BY claim_no DESC, line_no DESC    --? newest
 LIMIT :limit;
