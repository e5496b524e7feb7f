-- Delete finished jobs.
-- A finished job is kept until `keep_until`. Before a pruner calls a hook on a job or archives it, it leases the job: that
-- postpones `keep_until` and increases `prunings`. Only the pruner with that number may delete the job, and only if the job
-- has not run again meanwhile. Jobs of a workflow are kept until the workflow has ended: other jobs may wait for them.
-- The same names in the same order as in pruning.sqlite.sql. How they are written: engine/script.py.

-- name: prune
-- Delete finished jobs whose retention is over and whose task has no hook, the oldest first: a bounded search of one status.
DELETE FROM {schema}.jobs
 WHERE id = ANY(ARRAY(SELECT old.id
                        FROM {schema}.jobs AS old
                       WHERE old.id = ANY(ARRAY(SELECT id
                                                  FROM (SELECT id, type, keep_until, completed_at, prunings, workflow_id
                                                          FROM {schema}.jobs
                                                         WHERE status = ANY(ARRAY[:status::text])
                                                           AND status <> 'running'
                                                           AND id > :after::text::uuid
                                                           AND id < :before::text::uuid
                                                         ORDER BY status, id
                                                         LIMIT :scan::int) AS look
                                                 WHERE NOT EXISTS (SELECT 1 FROM {schema}.hooks WHERE hooks.type = look.type)
                                                   AND keep_until <= {now}                               --? over
                                                   AND completed_at <= {now} - :age::bigint * interval '1 microsecond'  --? old
                                                   AND (prunings = 0 OR keep_until <= {now})             --? old
                                                   AND NOT EXISTS (SELECT 1 FROM {schema}.workflows WHERE workflows.id = look.workflow_id AND workflows.finished_at IS NULL)
                                                 LIMIT :limit::int))
                         AND old.status IN ({finished})
                         AND old.keep_until <= {now}                                                     --? over
                         FOR UPDATE SKIP LOCKED))
RETURNING id::text;

-- name: prune_edge
-- Where the search of `prune` ended: the last id, and the number of rows. If asked, also how many jobs are due, and how
-- many of these have a hook that the caller does not know.
SELECT max(id::text), count(*)
       , count(*) FILTER (WHERE due)                                                                      --? counted
       , count(*) FILTER (WHERE due AND type IN (SELECT type FROM {schema}.hooks)                         --? counted
                            AND type <> ALL(ARRAY(SELECT json_array_elements_text(:types::text::json))))  --? counted
  FROM (SELECT id
               , type                                                                                     --? counted
               , NOT EXISTS (SELECT 1 FROM {schema}.workflows                                             --? counted
                              WHERE workflows.id = jobs.workflow_id AND workflows.finished_at IS NULL)    --? counted
                 AND keep_until <= {now}                                                                  --? over
                 AND completed_at <= {now} - :age::bigint * interval '1 microsecond'                      --? old
                 AND (prunings = 0 OR keep_until <= {now})                                                --? old
                 AS due                                                                                   --? counted
          FROM {schema}.jobs
         WHERE status = ANY(ARRAY[:status::text])
           AND status <> 'running'
           AND id > :after::text::uuid
           AND id < :before::text::uuid
         ORDER BY status, id
         LIMIT :scan::int) AS looked;

-- name: lease
-- Lease jobs that are due: jobs of tasks with a hook that the caller knows, and for an archive also jobs without a hook.
UPDATE {schema}.jobs
   SET keep_until = {now} + :lease::bigint * interval '1 microsecond',
       prunings = prunings + 1
 WHERE id = ANY(ARRAY(SELECT old.id
                        FROM {schema}.jobs AS old
                       WHERE old.id = ANY(ARRAY(SELECT id
                                                  FROM (SELECT id, type, keep_until, completed_at, prunings, workflow_id
                                                          FROM {schema}.jobs
                                                         WHERE status = ANY(ARRAY[:status::text])
                                                           AND status <> 'running'
                                                           AND id > :after::text::uuid
                                                           AND id < :before::text::uuid
                                                         ORDER BY status, id
                                                         LIMIT :scan::int) AS look
                                                 WHERE (type = ANY(ARRAY(SELECT json_array_elements_text(:types::text::json)))
                                                        OR NOT EXISTS (SELECT 1 FROM {schema}.hooks WHERE hooks.type = look.type) --? archived
                                                       )
                                                   AND keep_until <= {now}                               --? over
                                                   AND completed_at <= {now} - :age::bigint * interval '1 microsecond'  --? old
                                                   AND (prunings = 0 OR keep_until <= {now})             --? old
                                                   AND NOT EXISTS (SELECT 1 FROM {schema}.workflows WHERE workflows.id = look.workflow_id AND workflows.finished_at IS NULL)
                                                 LIMIT :limit::int))
                         AND old.status IN ({finished})
                         AND old.keep_until <= {now}                                                     --? over
                         AND (old.prunings = 0 OR old.keep_until <= {now})                               --? old
                         FOR UPDATE SKIP LOCKED))
RETURNING id::text, prunings, claim_no;

-- name: prune_leased
-- Delete leased jobs, each only while its lease holds.
DELETE FROM {schema}.jobs
 USING json_to_recordset(:batch::text::json) AS new (id uuid, prunings integer, claim_no bigint)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
   AND jobs.prunings = new.prunings
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') IN ({prune})
RETURNING jobs.id::text;

-- name: put_off
-- Keep jobs that could not be deleted, with the reason; each only while its lease holds.
UPDATE {schema}.jobs
   SET keep_until = {now} + new.delay * interval '1 microsecond',
       prune_error = new.error
  FROM json_to_recordset(:batch::text::json) AS new (id uuid, prunings integer, claim_no bigint, delay bigint, error text)
 WHERE jobs.id = new.id
   AND jobs.id = ANY(ARRAY(SELECT wanted.id FROM json_to_recordset(:batch::text::json) AS wanted (id uuid)))
   AND jobs.prunings = new.prunings
   AND jobs.claim_no = new.claim_no
   AND COALESCE(jobs.status, '') IN ({prune});

-- name: declare_hooks
-- Add tasks whose jobs are deleted only after a hook.
INSERT INTO {schema}.hooks (type)
SELECT type
  FROM json_to_recordset(:batch::text::json) AS new (type text)
 ORDER BY type
ON CONFLICT DO NOTHING;

-- name: forget_hooks
-- Remove tasks that have no hook any more.
DELETE FROM {schema}.hooks
 WHERE type = ANY(ARRAY(SELECT json_array_elements_text(:types::text::json)));

-- name: hooks
-- The tasks whose jobs are deleted only after a hook.
SELECT type
  FROM {schema}.hooks
 ORDER BY type;
