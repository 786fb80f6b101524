import type { Test } from 'tap'
import { messageOf } from '../../../db/support/error-message.ts'
import { withControl } from '../../../scripts/admin/control.ts'
import { verb } from '../../../scripts/verbs/mcp.ts'
import { mcpStage, type Stage } from '../mcp/stage.ts'
import { type Ran, sallyport } from '../run.ts'

/** A gateway, and `sallyport mcp` as an operator of the same machine has it. */
export interface Operator {
  readonly stage: Stage
  /** Runs the verb in this process. */
  readonly mcp: (...args: string[]) => Promise<Ran>
  /** Runs the verb in a process of its own. */
  readonly spawned: (...args: string[]) => Promise<Ran>
}

/** Starts the gateway of an operator. */
export async function operator(t: Test): Promise<Operator> {
  const stage = await mcpStage(t)
  const mcp = async (...args: string[]): Promise<Ran> => {
    let out = ''
    const write = (text: string): void => {
      out += text
    }
    try {
      await verb.perform(args, (_door, work) => withControl(stage.settings, work), write)
      return { code: 0, out, err: '' }
    } catch (error) {
      return { code: 1, out, err: `sallyport: ${messageOf(error)}\n` }
    }
  }
  const spawned = (...args: string[]): Promise<Ran> =>
    sallyport(['mcp', ...args], { MCP_PROXY_DATA_DIR: stage.settings.dataDir })
  return { stage, mcp, spawned }
}
