import { join } from 'node:path'
import { DPOP_MODES } from '../../plugins/dpop/modes.ts'
import type { OperatorFile } from '../../plugins/operator-files/files.ts'
import type { Settings } from '../boot/settings.ts'
import type { ConfigurationInForce, FileInForce, ModeInForce } from '../dashboard/frame/dashboard.ts'
import type { Configuration } from './configuration.ts'

const BOOLEAN_VALUES = ['true', 'false']

/**
 * Says what is in force, and which line of which file says it. Holds names and places; of values, the modes
 * alone.
 */
export function describeInForce(
  { files, dpopMode, noDowngrade, mcp }: Configuration,
  { pluginsDir, egressDpopMode }: Pick<Settings, 'pluginsDir' | 'egressDpopMode'>,
): ConfigurationInForce {
  const placeOf = (plugin: string, name: string): Pick<ModeInForce, 'path' | 'line'> => {
    const file = files.find((one) => one.plugin === plugin)
    if (!file) return { path: null, line: null }
    const isThere = file.has([name])
    return { path: join(pluginsDir, file.file), line: isThere ? file.positionOf([name]).line : null }
  }
  const variable = egressDpopMode === null ? null : 'MCP_PROXY_EGRESS_DPOP_MODE'
  return {
    modes: [
      {
        ...{ name: 'egress_dpop_mode', value: dpopMode, values: DPOP_MODES, variable },
        ...placeOf('dpop', 'egress_dpop_mode'),
      },
      {
        ...{ name: 'no_downgrade', value: String(noDowngrade), values: BOOLEAN_VALUES, variable: null },
        ...placeOf('dpop', 'no_downgrade'),
      },
      {
        ...{ name: 'enforce_tools_call', value: String(mcp.enforce_tools_call), values: BOOLEAN_VALUES },
        ...{ variable: null, ...placeOf('mcp', 'enforce_tools_call') },
      },
    ],
    files: files.map((file) => fileInForce(file, pluginsDir)),
  }
}

const fileInForce = (
  { file, plugin, shadow, digest, options, has, positionOf }: OperatorFile,
  directory: string,
): FileInForce => ({
  ...{ file, plugin, shadow, digest, path: join(directory, file) },
  options: Object.keys(options)
    .filter((name) => has([name]))
    .map((name) => ({ name, line: positionOf([name]).line }))
    .toSorted((one, other) => one.line - other.line),
})
