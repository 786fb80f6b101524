/** Thrown if the database is away or does not answer in time: a later try may succeed. */
export class DatabaseUnavailable extends Error {}
