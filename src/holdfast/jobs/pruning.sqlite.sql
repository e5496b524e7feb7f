-- Delete finished jobs.
-- A finished job is kept until `keep_until`. Before a pruner calls a hook on a job or archives it, it leases the job: that
-- postpones `keep_until` and increases `prunings`. Only the pruner with that number may delete the job, and only if the job
-- has not run again meanwhile. Jobs of a workflow are kept until the workflow has ended: other jobs may wait for them.
-- The same names in the same order as in pruning.postgres.sql. How they are written: engine/script.py.

-- name: prune
-- Delete finished jobs whose retention is over and whose task has no hook, the oldest first: a bounded search of one status.
DELETE FROM holdfast_jobs
 WHERE id IN (SELECT id
                FROM (SELECT id, type, keep_until, completed_at, prunings, workflow_id
                        FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
                       WHERE status = :status
                         AND status <> 'running'
                         AND id > :after
                         AND id < :before
                       ORDER BY id
                       LIMIT :scan) AS look
               WHERE type NOT IN (SELECT type FROM holdfast_hooks)
                 AND keep_until <= {now}                                                        --? over
                 AND completed_at <= {now} - :age AND (prunings = 0 OR keep_until <= {now})     --? old
                 AND NOT EXISTS (SELECT 1 FROM holdfast_workflows WHERE id = look.workflow_id AND finished_at IS NULL)
               LIMIT :limit)
RETURNING id;

-- name: prune_edge
-- Where the search of `prune` ended: the last id, and the number of rows. If asked, also how many jobs are due, and how
-- many of these have a hook that the caller does not know.
SELECT MAX(id), COUNT(*)
       , SUM(due)                                                                                         --? counted
       , SUM(due AND type IN (SELECT type FROM holdfast_hooks) AND type NOT IN (SELECT value FROM json_each(:types))) --? counted
  FROM (SELECT id
               , type                                                                                     --? counted
               , NOT EXISTS (SELECT 1 FROM holdfast_workflows WHERE id = jobs.workflow_id AND finished_at IS NULL) --? counted
                 AND keep_until <= {now}                                                                  --? over
                 AND completed_at <= {now} - :age AND (prunings = 0 OR keep_until <= {now})               --? old
                 AS due                                                                                   --? counted
          FROM holdfast_jobs AS jobs INDEXED BY holdfast_jobs_listed
         WHERE status = :status
           AND status <> 'running'
           AND id > :after
           AND id < :before
         ORDER BY id
         LIMIT :scan);

-- name: lease
-- Lease jobs that are due: jobs of tasks with a hook that the caller knows, and for an archive also jobs without a hook.
UPDATE holdfast_jobs
   SET keep_until = {now} + :lease,
       prunings = prunings + 1
 WHERE id IN (SELECT id
                FROM (SELECT id, type, keep_until, completed_at, prunings, workflow_id
                        FROM holdfast_jobs INDEXED BY holdfast_jobs_listed
                       WHERE status = :status
                         AND status <> 'running'
                         AND id > :after
                         AND id < :before
                       ORDER BY id
                       LIMIT :scan) AS look
               WHERE (type IN (SELECT value FROM json_each(:types))
                      OR type NOT IN (SELECT type FROM holdfast_hooks)                          --? archived
                     )
                 AND keep_until <= {now}                                                        --? over
                 AND completed_at <= {now} - :age AND (prunings = 0 OR keep_until <= {now})     --? old
                 AND NOT EXISTS (SELECT 1 FROM holdfast_workflows WHERE id = look.workflow_id AND finished_at IS NULL)
               LIMIT :limit)
RETURNING id, prunings, claim_no;

-- name: prune_leased
-- Delete leased jobs, each only while its lease holds.
DELETE FROM holdfast_jobs
 WHERE id = :id
   AND prunings = :prunings
   AND claim_no = :claim_no
   AND status IN ({prune})
RETURNING id;

-- name: put_off
-- Keep jobs that could not be deleted, with the reason; each only while its lease holds.
UPDATE holdfast_jobs
   SET keep_until = {now} + :delay,
       prune_error = :error
 WHERE id = :id
   AND prunings = :prunings
   AND claim_no = :claim_no
   AND status IN ({prune});

-- name: declare_hooks
-- Add tasks whose jobs are deleted only after a hook.
INSERT INTO holdfast_hooks (type)
VALUES (:type)
ON CONFLICT DO NOTHING;

-- name: forget_hooks
-- Remove tasks that have no hook any more.
DELETE FROM holdfast_hooks
 WHERE type IN (SELECT value FROM json_each(:types));

-- name: hooks
-- The tasks whose jobs are deleted only after a hook.
SELECT type
  FROM holdfast_hooks
 ORDER BY type;
