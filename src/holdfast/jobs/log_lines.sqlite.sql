-- Lines of job logs.
-- The same names in the same order as in log_lines.postgres.sql. How they are written: engine/script.py.

-- name: insert_logs
-- Add lines. Lines that exist already, and those of deleted jobs, are left out.
INSERT INTO holdfast_logs (job_id, claim_no, attempt, line_no, at, level, text)
SELECT :id, :claim_no, :attempt, :line_no, :at, :level, :text
 WHERE EXISTS (SELECT 1 FROM holdfast_jobs WHERE id = :id)
ON CONFLICT DO NOTHING;

-- name: prune_logs
-- Delete the lines of older runs: a recurring job never ends.
DELETE FROM holdfast_logs
 WHERE job_id = :id
   AND claim_no <= :claim_no;

-- name: logs
-- Lines of a job behind one of them, in order; or the last lines, in reverse order.
SELECT job_id, claim_no, attempt, line_no, at, level, text
  FROM holdfast_logs
 WHERE job_id = :id
   AND (claim_no, line_no) > (:claim_no, :line_no)
 ORDER BY claim_no, line_no              --? oldest
 ORDER BY claim_no DESC, line_no DESC    --? newest
 LIMIT :limit;
