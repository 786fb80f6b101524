import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort, listening, type Peer, pythonPackage } from './peer.ts'

/** LiteLLM's proxy (Python), from the package `litellm[proxy]`. It does not start without a key of its own. */
export const LITELLM: Peer = {
  name: 'LiteLLM',
  what: 'plain HTTP, one key for all, no database; --num_workers 1',
  serves: 'llm',
  version: (installed) => (installed === undefined ? null : pythonPackage(`${installed}/litellm`, 'litellm')),
  prepare: async ({ directory, upstreamPort, installed = '' }) => {
    const port = await freePort()
    const key = `sk-${randomBytes(24).toString('hex')}`
    const file = join(directory, 'litellm.yaml')
    await writeFile(file, configuration(upstreamPort, key))
    return {
      start: {
        name: 'litellm',
        command: join(installed, 'litellm/bin/litellm'),
        args: ['--host', '127.0.0.1', '--port', String(port), '--config', file, '--num_workers', '1'],
        // It would fetch its table of prices.
        env: { LITELLM_LOCAL_MODEL_COST_MAP: 'True', LITELLM_LOG: 'ERROR', HOME: directory },
        ready: (child) => listening(port, child),
      },
      headers: [`authorization: Bearer ${key}`],
    }
  },
}

const configuration = (upstreamPort: number, key: string): string => `model_list:
  - model_name: "*"
    litellm_params: {model: "openai/*", api_base: "http://127.0.0.1:${upstreamPort}/v1", api_key: sk-bench}
general_settings: {master_key: ${key}}
`
