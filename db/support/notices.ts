/**
 * Messages between processes that share a database. One may be lost: a process that must miss nothing reads
 * the database too. Nobody hears its own messages.
 */
export interface NoticeChannel {
  /**
   * Tells all other processes, in the order of telling. `text` holds no NUL. Throws a RangeError past {@link
   * NOTICE_MAX_BYTES}. A text sent while the others cannot be reached is lost.
   */
  readonly notify: (topic: string, text: string) => void
  /**
   * Calls `told`, which must not throw, with each text on a topic from now on: a word of letters, digits,
   * `-`, `:`.
   */
  readonly on: (topic: string, told: (text: string) => void) => void
  /** False from the moment that something may have been missed, until nothing can be any more. */
  readonly listening: boolean
  /**
   * Since when nothing can have been missed while `listening`. ms of `performance.now()`. Absent: from the
   * beginning.
   */
  readonly since?: number
}

/** The longest text of one notice. Bytes of UTF-8. */
export const NOTICE_MAX_BYTES = 1_048_576

/**
 * The topic of changes of authority: each change tells it to every process, also to its own. The text is a
 * number that each change raises.
 */
export const AUTHORITY_TOPIC = 'authority'

/** The notices of a process that has the database to itself. */
export const NO_NOTICES: NoticeChannel = { notify: () => {}, on: () => {}, listening: true }
