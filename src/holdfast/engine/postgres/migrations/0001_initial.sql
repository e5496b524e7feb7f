-- breaking: no
-- Jobs with their bodies (TOAST keeps those apart), their failed attempts; workers and queues.

CREATE TABLE {schema}.jobs (
    id               uuid        NOT NULL PRIMARY KEY,
    type             text        NOT NULL,
    queue            text        NOT NULL,
    status           text        NOT NULL CHECK (status IN ({every_status})),
    priority         bigint      NOT NULL,
    rank             bigint      NOT NULL,
    key              text,
    entity_type      text,
    entity_id        text,
    attempts         integer     NOT NULL DEFAULT 0,
    max_attempts     integer     NOT NULL,
    crashes          integer     NOT NULL DEFAULT 0,
    suspect          boolean     NOT NULL DEFAULT false,
    verdict          text,
    claim_no         bigint      NOT NULL DEFAULT 0,
    finish_no        bigint      NOT NULL DEFAULT 0,
    worker_id        text,
    timeout          double precision,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    run_at           timestamptz NOT NULL,
    started_at       timestamptz,
    completed_at     timestamptz,
    keep_until       timestamptz,
    rerun_at         timestamptz,
    error            text,
    progress         double precision,
    message          text,
    cancel_requested boolean     NOT NULL DEFAULT false,
    payload          json        NOT NULL,
    result           json
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 0
);

-- What a claim walks: one type of one queue, in the order of running; those that must run alone are not on the way.
CREATE INDEX jobs_claim ON {schema}.jobs (queue, type, suspect, rank, run_at, id) WHERE status = 'pending';

-- Those whose process died under them: few, and run alone.
CREATE INDEX jobs_suspect ON {schema}.jobs (rank, run_at, id) WHERE status = 'pending' AND suspect;

-- What promote walks, and what tells when to look again.
CREATE INDEX jobs_due ON {schema}.jobs (run_at, id) WHERE status IN ('scheduled', 'retrying');

-- What a worker holds.
CREATE INDEX jobs_held ON {schema}.jobs (worker_id, id) WHERE status = 'running';

-- Lists by status, newest first, and pruning, oldest first. Running jobs are few: see above.
CREATE INDEX jobs_listed ON {schema}.jobs (status, id) WHERE status <> 'running';

-- A key is unique among the unfinished jobs of its task.
CREATE UNIQUE INDEX jobs_key ON {schema}.jobs (type, key) WHERE key IS NOT NULL AND status IN ({unfinished});

CREATE INDEX jobs_entity ON {schema}.jobs (entity_type, entity_id, id) WHERE entity_type IS NOT NULL;

CREATE TABLE {schema}.attempts (
    job_id      uuid        NOT NULL REFERENCES {schema}.jobs (id) ON DELETE CASCADE,
    claim_no    bigint      NOT NULL,
    attempt     integer     NOT NULL,
    worker_id   text,
    started_at  timestamptz,
    finished_at timestamptz NOT NULL,
    status      text        NOT NULL,
    error       text        NOT NULL,
    trace       text,
    PRIMARY KEY (job_id, claim_no)
);

-- Few rows, updated often: without room on the page and quick vacuums they would slow every claim.
CREATE TABLE {schema}.workers (
    id         text        NOT NULL PRIMARY KEY,
    info       text        NOT NULL,
    beat_no    bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at    timestamptz NOT NULL,
    left_at    timestamptz,
    died_at    timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

CREATE INDEX workers_dead ON {schema}.workers (died_at) WHERE died_at IS NOT NULL;

CREATE TABLE {schema}.queues (
    name      text NOT NULL PRIMARY KEY,
    paused_at timestamptz
);
