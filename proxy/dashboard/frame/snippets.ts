import {
  ANTHROPIC_ELSEWHERE,
  ANTHROPIC_VARIABLES,
  OPENAI_ELSEWHERE,
  OPENAI_VARIABLES,
  STAY_LOCAL,
} from '../../client-settings.ts'
import type { DashboardContext } from './dashboard.ts'
import { copyableCommand, exactHtml, type HtmlFragment, html } from './parts.ts'

export const baseUrlOf = ({ baseUrls }: Pick<DashboardContext, 'baseUrls'>): string =>
  baseUrls()[0] ?? 'https://localhost:9443'

export function clientSnippets(dashboard: DashboardContext, name: string): HtmlFragment {
  const url = baseUrlOf(dashboard)
  const folder = `agents/${name}`
  const tls = `--cert ${folder}/agent.crt --key ${folder}/agent.key --cacert ${folder}/org-ca.crt`
  const direct: readonly (readonly [string, string])[] = [
    [
      'curl',
      `curl -N --noproxy '*' ${tls} ${url}/v1/chat/completions -H 'content-type: application/json' \\\n  -d '{"model": "gpt-5-mini", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'`,
    ],
  ]
  const sidecar = `make connect IDENTITY=${folder} PORT=8787`
  const local = 'http://127.0.0.1:8787'
  const clients: readonly (readonly [string, string])[] = [
    ['The sidecar, which signs each call, in a terminal of its own', sidecar],
    ['In the shell of each client, so that calls to this machine go by no proxy', STAY_LOCAL.join('\n')],
    ['OpenAI SDK, Codex', exported(OPENAI_VARIABLES, local, OPENAI_ELSEWHERE)],
    ['Anthropic SDK, Claude Code', exported(ANTHROPIC_VARIABLES, local, ANTHROPIC_ELSEWHERE)],
    ['MCP clients', `${local}/v1/mcp`],
  ]
  const shown = [...(dashboard.proofRequired ? [] : direct), ...clients]
  return html`${shown.map(([title, text]) => copyableCommand(title, exactHtml(text)))}<p class="faint">Settings for each client: <code>make env IDENTITY=${folder}</code></p>`
}

function exported(
  variables: Readonly<Record<string, string>>,
  gateway: string,
  elsewhere: readonly string[],
): string {
  const words = Object.entries(variables).map(
    ([name, value]) => `${name}=${value.replace('{gateway}', gateway)}`,
  )
  return `export ${words.join(' ')}\nunset ${elsewhere.join(' ')}`
}
