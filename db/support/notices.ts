/**
 * What processes that share a database tell each other. It may be lost: whoever must not miss a thing reads it from
 * the database too. Nobody hears what it has told itself.
 */
export interface NoticeChannel {
  /**
   * Tells all other processes, in the order of telling. `text` holds no NUL. Throws a RangeError past
   * {@link NOTICE_MAX_BYTES}. What is told while the others cannot be reached is lost.
   */
  readonly notify: (topic: string, text: string) => void
  /** Calls `told`, which must not throw, with each text on a topic from now on: a word of letters, digits, `-`, `:`. */
  readonly on: (topic: string, told: (text: string) => void) => void
  /** False from the moment that something may have been missed, until nothing can be any more. */
  readonly listening: boolean
  /** Since when nothing can have been missed while `listening`. ms of `performance.now()`. Absent: from the beginning. */
  readonly since?: number
}

/** The longest text of one notice. Bytes of UTF-8. */
export const NOTICE_MAX_BYTES = 1_048_576

/**
 * The topic that says that what decisions are made by has changed: told with the change, whoever makes it, to the
 * process that makes it too. The text is a number that each change raises.
 */
export const AUTHORITY_TOPIC = 'authority'

/** The notices of a process that has the database to itself. */
export const NO_NOTICES: NoticeChannel = { notify: () => {}, on: () => {}, listening: true }
