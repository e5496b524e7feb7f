-- breaking: no
-- Idempotency keys; how often a job's process died under it; since when no worker could read its payload; a row that
-- health checks write. Jobs are added and claimed while the index is built.

ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS idempotency_key text;
ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS deaths integer NOT NULL DEFAULT 0;
ALTER TABLE {schema}.jobs ADD COLUMN IF NOT EXISTS unreadable_since timestamptz;

-- At most one job of a task has an idempotency key, whatever its status.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS jobs_idempotency ON {schema}.jobs (type, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Recurring jobs that were not disabled by an operator: few, and health names those that killed their process.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_disabled ON {schema}.jobs (type, key) WHERE disabled_because IS NOT NULL;

CREATE TABLE IF NOT EXISTS {schema}.probes (
    name text        NOT NULL PRIMARY KEY,
    at   timestamptz NOT NULL
) WITH (fillfactor = 50);

-- The pending job that has the turn of a key. (`in_line` was for versions before.)
ALTER TABLE {schema}.keys ADD COLUMN IF NOT EXISTS turn_id uuid;
