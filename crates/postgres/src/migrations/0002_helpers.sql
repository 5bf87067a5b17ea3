-- What memories keep so that they open faster. All of it can be deleted, and is made again.
CREATE TABLE helper (
    stream   bigint NOT NULL,
    name     text COLLATE "C" NOT NULL,      -- empty in the row of those who begin to make some
    sequence bigint NOT NULL,                -- of the last event that it knows
    writing  bigint NOT NULL,                -- which parts are its own; of who begins, what it is told
    PRIMARY KEY (stream, name)
);

-- A helper in parts, so that no row is large. They are written once, and removed with their helper.
CREATE TABLE helper_part (
    writing bigint NOT NULL,
    part    integer NOT NULL,
    bytes   bytea NOT NULL,
    PRIMARY KEY (writing, part)
);
