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
    prunings         integer     NOT NULL DEFAULT 0,
    prune_error      text,
    rerun_at         timestamptz,
    error            text,
    progress         double precision,
    message          text,
    cancel_requested boolean     NOT NULL DEFAULT false,
    expires_at       timestamptz,
    limit_name       text COLLATE "C",
    limit_key        text COLLATE "C",
    limit_queue      text COLLATE "C",
    schedule         text,
    enabled          boolean     NOT NULL DEFAULT true,
    disabled_because text,
    due_at           timestamptz,
    last_run_at      timestamptz,
    last_error       text,
    consecutive_failures integer NOT NULL DEFAULT 0,
    workflow_id      uuid,
    node             text,
    seen             text,
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
CREATE INDEX jobs_due ON {schema}.jobs (run_at, id) WHERE status IN ('scheduled', 'retrying') AND enabled;

-- What counts under a limit: of a task or a name, of a key, of a queue. Jobs without limits are in none of these.
CREATE INDEX jobs_slots ON {schema}.jobs (limit_name) WHERE status = 'running' AND limit_name IS NOT NULL;
CREATE INDEX jobs_keyed ON {schema}.jobs (limit_key) WHERE status = 'running' AND limit_key IS NOT NULL;
CREATE INDEX jobs_crowd ON {schema}.jobs (limit_queue) WHERE status = 'running' AND limit_queue IS NOT NULL;

-- Who waits for a key, in the order of running.
CREATE INDEX jobs_parked ON {schema}.jobs (limit_key, rank, run_at, id) WHERE status = 'blocked' AND limit_key IS NOT NULL;

-- Recurring jobs: one row each, by task and key.
CREATE INDEX jobs_recurring ON {schema}.jobs (type, key) WHERE schedule IS NOT NULL;

-- What a worker holds.
CREATE INDEX jobs_held ON {schema}.jobs (worker_id, id) WHERE status = 'running';

-- Lists by status, newest first, and pruning, oldest first. Running jobs are few: see above.
CREATE INDEX jobs_listed ON {schema}.jobs (status, id) WHERE status <> 'running';

-- A key is unique among the unfinished jobs of its task.
CREATE UNIQUE INDEX jobs_key ON {schema}.jobs (type, key) WHERE key IS NOT NULL AND status IN ({unfinished});

CREATE INDEX jobs_entity ON {schema}.jobs (entity_type, entity_id, id) WHERE entity_type IS NOT NULL;

-- The jobs of a workflow; and those of them of which the consequences are to be drawn.
CREATE INDEX jobs_workflow ON {schema}.jobs (workflow_id, status, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX jobs_unseen ON {schema}.jobs (workflow_id, id) WHERE workflow_id IS NOT NULL AND {unseen};

CREATE TABLE {schema}.attempts (
    job_id      uuid        NOT NULL REFERENCES {schema}.jobs (id) ON DELETE CASCADE,
    claim_no    bigint      NOT NULL,
    attempt     integer     NOT NULL,
    worker_id   text,
    started_at  timestamptz,
    finished_at timestamptz NOT NULL,
    status      text        NOT NULL,
    error       text,
    trace       text,
    PRIMARY KEY (job_id, claim_no)
);

-- What handlers wrote with ctx.log.
CREATE TABLE {schema}.logs (
    job_id   uuid        NOT NULL REFERENCES {schema}.jobs (id) ON DELETE CASCADE,
    claim_no bigint      NOT NULL,
    attempt  integer     NOT NULL,
    line_no  integer     NOT NULL,
    at       timestamptz NOT NULL,
    level    text        NOT NULL,
    text     text        NOT NULL,
    PRIMARY KEY (job_id, claim_no, line_no)
);

-- Jobs that wait for other jobs. Its row is held while somebody draws the consequences of what has ended.
CREATE TABLE {schema}.workflows (
    id          uuid        NOT NULL PRIMARY KEY,
    name        text        NOT NULL,
    status      text        NOT NULL DEFAULT 'running',
    created_at  timestamptz NOT NULL,
    finished_at timestamptz
) WITH (fillfactor = 70);

CREATE INDEX workflows_open ON {schema}.workflows (id) WHERE finished_at IS NULL;
CREATE INDEX workflows_finished ON {schema}.workflows (finished_at) WHERE finished_at IS NOT NULL;

-- The outcome is that of the parent, once it matters no more.
CREATE TABLE {schema}.edges (
    child_id  uuid    NOT NULL REFERENCES {schema}.jobs (id) ON DELETE CASCADE,
    parent_id uuid    NOT NULL,
    place     integer NOT NULL,
    policy    text    NOT NULL,
    outcome   text,
    PRIMARY KEY (child_id, parent_id)
);

CREATE INDEX edges_parent ON {schema}.edges (parent_id);
CREATE INDEX edges_open ON {schema}.edges (child_id) WHERE outcome IS NULL;

-- Few rows, updated often: without room on the page and quick vacuums they would slow every claim.
CREATE TABLE {schema}.workers (
    id         text        NOT NULL PRIMARY KEY,
    info       text        NOT NULL,
    beat_no    bigint      NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at    timestamptz NOT NULL,
    left_at    timestamptz,
    died_at    timestamptz,
    asked_at   timestamptz,
    stacks_at  timestamptz,
    stacks     text
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

CREATE INDEX workers_dead ON {schema}.workers (died_at) WHERE died_at IS NOT NULL;

CREATE TABLE {schema}.queues (
    name      text NOT NULL PRIMARY KEY,
    paused_at timestamptz,
    resume_at timestamptz
);

-- Tasks whose finished jobs may go only after a hook was called, which somebody must know.
CREATE TABLE {schema}.hooks (
    type text NOT NULL PRIMARY KEY
);

-- Limits as the code declares them, and what an operator has set instead. A rate is so many starts in a period.
CREATE TABLE {schema}.limits (
    name            text        COLLATE "C" NOT NULL PRIMARY KEY,
    concurrency     integer,
    rate            integer,
    period          bigint,
    keyed           boolean     NOT NULL DEFAULT false,
    fair            boolean     NOT NULL DEFAULT false,
    tasks           text        NOT NULL DEFAULT '[]',
    set_concurrency integer,
    set_rate        integer,
    set_period      bigint,
    updated_at      timestamptz NOT NULL
);

-- The keys of limits: a limit without keys has one, of its own name. Locked while a claim counts.
CREATE TABLE {schema}.keys (
    key     text        COLLATE "C" NOT NULL PRIMARY KEY,
    name    text        COLLATE "C" NOT NULL,
    starts  text,
    wake_at timestamptz,
    in_line boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX keys_name ON {schema}.keys (name, key);
CREATE INDEX keys_wake ON {schema}.keys (wake_at) WHERE wake_at IS NOT NULL;

-- What each worker did of each task in each minute: counts, seconds in all, and histograms as JSON. Each row has one writer.
CREATE TABLE {schema}.rollups (
    minute    timestamptz      NOT NULL,
    type      text             NOT NULL,
    queue     text             NOT NULL,
    worker_id text             NOT NULL,
    completed bigint           NOT NULL,
    failed    bigint           NOT NULL,
    cancelled bigint           NOT NULL,
    retried   bigint           NOT NULL,
    wait      double precision NOT NULL,
    run       double precision NOT NULL,
    waits     text             NOT NULL,
    runs      text             NOT NULL,
    PRIMARY KEY (minute, type, queue, worker_id)
) WITH (fillfactor = 70);

-- What happened to jobs that somebody follows. Nobody resumes from before the floor.
CREATE TABLE {schema}.events (
    position bigserial   NOT NULL PRIMARY KEY,
    at       timestamptz NOT NULL,
    job_id   uuid        NOT NULL,
    kind     text        NOT NULL,
    data     json        NOT NULL
) WITH (autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_scale_factor = 0);

CREATE TABLE {schema}.outbox (
    floor bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO {schema}.outbox VALUES (0);

-- Who follows what: a job, or '' for everything; of that nothing was left out since a position.
CREATE TABLE {schema}.followers (
    name  text        NOT NULL,
    topic text        NOT NULL,
    until timestamptz NOT NULL,
    since bigint      NOT NULL,
    PRIMARY KEY (name, topic)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0);

-- Who may use the web interface. Of a secret only its hash is kept. A session belongs to the token that it came from.
CREATE TABLE {schema}.tokens (
    id           uuid        NOT NULL PRIMARY KEY,
    hash         text        NOT NULL UNIQUE,
    name         text        NOT NULL,
    role         text        NOT NULL,
    kind         text        NOT NULL CHECK (kind IN ('token', 'session')),
    scope        text        NOT NULL,
    parent_id    uuid,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    created_by   text
) WITH (fillfactor = 70);

CREATE INDEX tokens_kind ON {schema}.tokens (kind, id);
CREATE INDEX tokens_sessions ON {schema}.tokens (expires_at) WHERE kind = 'session';

-- What people and programs did by the web interface. Entries are added, never changed; numbers tell how many there are.
CREATE TABLE {schema}.audit (
    id         uuid        NOT NULL PRIMARY KEY,
    number     bigserial   NOT NULL,
    at         timestamptz NOT NULL,
    actor      text        NOT NULL,
    role       text        NOT NULL,
    action     text        NOT NULL,
    target     text,
    detail     text        NOT NULL,
    address    text,
    request_id text
);

-- What only those who use this database may know: it signs what they hand out.
CREATE TABLE {schema}.secrets (
    name  text NOT NULL PRIMARY KEY,
    value text NOT NULL
);
