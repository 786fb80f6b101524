/** Thrown where the database is away or does not answer in time: whoever asks again later may be served. */
export class DatabaseUnavailable extends Error {}
