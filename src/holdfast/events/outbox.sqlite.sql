-- Events, written with the change that they report.
-- The same statements, in the same order, as in outbox.postgres.sql. How they are written: engine/statements.py.

-- name: audience
-- What somebody follows.
SELECT topic
  FROM holdfast_followers
 WHERE until > {now}
 LIMIT :limit;

-- name: emit
-- Tell of jobs, as their rows stand now. A job that has ended tells that; one that failed and runs again did not fail
-- for good.
INSERT INTO holdfast_events (at, job_id, kind, data)
SELECT {now}, jobs.id,
       CASE WHEN jobs.status IN ({finished}) THEN jobs.status
            WHEN :kind = 'failed' THEN 'retrying'
            ELSE :kind END,
       json_object(
           'type', jobs.type, 'queue', jobs.queue, 'status', jobs.status,
           'entity_type', jobs.entity_type, 'entity_id', jobs.entity_id,
           'attempts', jobs.attempts, 'max_attempts', jobs.max_attempts, 'claim_no', jobs.claim_no,
           'worker_id', jobs.worker_id, 'run_at', jobs.run_at, 'error', jobs.error,
           'result', CASE WHEN :kind = 'completed' AND length(CAST(results.result AS BLOB)) <= :result THEN results.result END,
           'result_left_out', :kind = 'completed' AND COALESCE(length(CAST(results.result AS BLOB)), 0) > :result,
           'progress', jobs.progress, 'message', jobs.message)
  FROM json_each(:ids) AS told
 CROSS JOIN holdfast_jobs AS jobs ON jobs.id = told.value
  LEFT JOIN holdfast_results AS results ON results.job_id = jobs.id
 WHERE NOT :final OR jobs.status IN ({finished})
 ORDER BY told.key;

-- name: ring
-- Wake those who follow. Nothing to send here: the kernel tells of every commit (wakeups.py).
SELECT 1;

-- name: hold_outbox
-- Nothing to hold: who writes is alone.
SELECT floor
  FROM holdfast_outbox;

-- name: covered
-- Since which positions nothing of these topics was left out.
SELECT topic, since
  FROM holdfast_followers
 WHERE until > {now}
   AND topic IN (SELECT value FROM json_each(:topics));

-- name: begin_topics
-- A row of no job: from its position on, something more is written.
INSERT INTO holdfast_events (at, job_id, kind, data)
VALUES ({now}, '', :kind, '{}')
RETURNING position;

-- name: raise_floor
-- What is up to here cannot be read any more.
UPDATE holdfast_outbox
   SET floor = MAX(floor, :floor);

-- name: subscribe
-- Somebody follows these topics, at least for so long.
INSERT INTO holdfast_followers (name, topic, until, since)
SELECT :name, key, {now} + :life, value
  FROM json_each(:since)
 WHERE true
ON CONFLICT (name, topic) DO UPDATE
   SET until = MAX(until, excluded.until), since = excluded.since;

-- name: is_held
-- Is a subscription alive?
SELECT EXISTS (SELECT 1 FROM holdfast_followers WHERE name = :name AND until > {now});

-- name: horizon
-- The last position that was given away, and from where on all can be read.
SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'holdfast_events'), 0),
       (SELECT floor FROM holdfast_outbox);

-- name: mark
-- Nothing to compare: here positions are in the order of commits.
SELECT 0;

-- name: ended
-- Nor here: all that is seen has ended.
SELECT 1;

-- name: events
-- Events behind a position, in order.
SELECT position, at, job_id, kind, data, (SELECT floor FROM holdfast_outbox)
  FROM holdfast_events
 WHERE position > :after
 ORDER BY position
 LIMIT :limit;

-- name: prune_events
-- Forget the oldest events: those up to a position, and those of an age; a bounded look.
DELETE FROM holdfast_events
 WHERE position IN (SELECT position
                      FROM (SELECT position, at
                              FROM holdfast_events
                             WHERE position > 0
                             ORDER BY position
                             LIMIT :limit)
                     WHERE position <= :bound
                        OR at < {now} - :age)
RETURNING position;

-- name: prune_followers
-- Forget those whose time is over.
DELETE FROM holdfast_followers
 WHERE until <= {now};
