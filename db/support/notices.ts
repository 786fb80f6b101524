/** Messages between processes that share a database. One may be lost. Nobody hears its own. */
export interface NoticeChannel {
  /** Tells all others, in order. `text` holds no NUL. Throws a RangeError past {@link NOTICE_MAX_BYTES}. */
  readonly notify: (topic: string, text: string) => void
  /** Calls `told`, which must not throw, with each text on a topic: a word of letters, digits, `-`, `:`. */
  readonly on: (topic: string, told: (text: string) => void) => void
  /** False from the moment that something may have been missed, until nothing can be any more. */
  readonly listening: boolean
  /** Since when nothing was missed while `listening`. ms of `performance.now()`. Absent: always. */
  readonly since?: number
}

/** The longest text of one notice. Bytes of UTF-8. */
export const NOTICE_MAX_BYTES = 1_048_576

/** Each change of authority tells this topic, also in its own process. The text is a rising number. */
export const AUTHORITY_TOPIC = 'authority'

/** The notices of a process that has the database to itself. */
export const NO_NOTICES: NoticeChannel = { notify: () => {}, on: () => {}, listening: true }
