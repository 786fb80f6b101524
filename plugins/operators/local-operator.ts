import type { Arrival, Plugin } from '../plugin.ts'
import { unstoredOperator } from './actor.ts'
import type { KnownOperator } from './operator.ts'

/**
 * Admits every caller on the local control socket: the file's mode decides who reaches it. They act as
 * `socket:<uid>`, whatever certificate, secret or cookie they bring along.
 */
export const localOperator: Plugin<Arrival, KnownOperator> = {
  name: 'local_operator',
  admit: ({ localUid }) => ({
    ...unstoredOperator(`socket:${localUid ?? 'unknown'}`, 'socket', []),
    ...{ proof: null, token: null },
  }),
}
