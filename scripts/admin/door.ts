import { readSettings } from '../../proxy/boot/settings.ts'
import { GATEWAY_OPTION, type OptionValues } from '../command.ts'
import type { AdminCall } from './call.ts'
import { withControl } from './control.ts'
import { withOperator } from './network.ts'

/** The options of every verb that administers. */
export const DOOR_OPTIONS = {
  as: {
    type: 'string',
    value: 'DIR',
    description: `over the network, as the operator with that identity (default SALLYPORT_OPERATOR); without either,
over the control socket of this machine's gateway, or on its data directory if no gateway runs`,
  },
  ...GATEWAY_OPTION,
} as const

/** The door of administration, by a verb's options and the environment. */
export type AdminDoor = OptionValues<typeof DOOR_OPTIONS>

/** The note on doors in the help of each such verb. */
export const DOOR_NOTES =
  'Works with a running gateway, without one, and with --as from any machine (docs/operators.md).'

/** The operator's directory that this command line speaks for; undefined: a user of this machine. */
export const operatorDirectory = ({ as }: AdminDoor): string | undefined =>
  as ?? (process.env.SALLYPORT_OPERATOR || undefined)

/** Does administrative work by the door that the options name. */
export async function withAdministration<T>(
  door: AdminDoor,
  work: (call: AdminCall) => Promise<T>,
): Promise<T> {
  const directory = operatorDirectory(door)
  if (directory !== undefined) return withOperator(directory, door.gateway, work)
  if (door.gateway !== undefined) throw new Error('--gateway needs --as DIR')
  return withControl(readSettings(process.env, process.cwd()), work)
}
