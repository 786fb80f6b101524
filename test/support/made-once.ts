/** The variable that names the folder of what a run makes once, for all its files (test/run.ts). */
export const MADE_ONCE = 'TEST_MADE_ONCE'
/** In that folder: a SQLite file that has run all migrations and holds nothing else. */
export const MIGRATED_FILE = 'migrated.db'
