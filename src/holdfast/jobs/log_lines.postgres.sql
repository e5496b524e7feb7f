-- Lines of job logs.
-- The same names in the same order as in log_lines.sqlite.sql. How they are written: engine/script.py.

-- name: insert_logs
-- Add lines. Lines that exist already, and those of deleted jobs, are left out. The jobs are locked first, as the
-- foreign key would lock them, so that a job that is being deleted is skipped and causes no error.
INSERT INTO {schema}.logs (job_id, claim_no, attempt, line_no, at, level, text)
SELECT jobs.id, new.claim_no, new.attempt, new.line_no, new.at, new.level, new.text
  FROM json_to_recordset(:batch::text::json)
    AS new (id uuid, claim_no bigint, attempt integer, line_no integer, at timestamptz, level text, text text)
 CROSS JOIN LATERAL (SELECT jobs.id FROM {schema}.jobs WHERE jobs.id = new.id FOR KEY SHARE) AS jobs
ON CONFLICT DO NOTHING;

-- name: prune_logs
-- Delete the lines of older runs: a recurring job never ends. (Job by job, whatever sizes the planner assumes: a join of
-- both tables would read all lines.)
DELETE FROM {schema}.logs
 WHERE ctid = ANY (ARRAY(
       SELECT line.place
         FROM json_to_recordset(:batch::text::json) AS old (id uuid, claim_no bigint)
        CROSS JOIN LATERAL (
              SELECT ctid AS place
                FROM {schema}.logs
               WHERE job_id = old.id
                 AND claim_no <= old.claim_no
              OFFSET 0) AS line));

-- name: logs
-- Lines of a job behind one of them, in order; or the last lines, in reverse order.
SELECT job_id::text, claim_no, attempt, line_no, at, level, text
  FROM {schema}.logs
 WHERE job_id = :id::text::uuid
   AND (claim_no, line_no) > (:claim_no::bigint, :line_no::integer)
 ORDER BY claim_no, line_no              --? oldest
 ORDER BY claim_no DESC, line_no DESC    --? newest
 LIMIT :limit::int;
