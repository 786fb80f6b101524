import { shellWord } from '../shell-word.ts'
import type { AgentApi, ReachedModel } from './model-reach.ts'

/** A section of the lines for one client: its title, and lines to type. */
export interface AgentSection {
  readonly title: string
  readonly lines: readonly string[]
}

const API_TITLES: Readonly<Record<AgentApi, string>> = {
  messages: 'Anthropic Messages',
  responses: 'OpenAI Responses',
}

/** Says how Claude Code reaches a model, what it loses, and what to type. */
export function claudeCodeSection(reached: ReachedModel): AgentSection {
  const { model, wires, lossy } = reached
  const title = titleOf('Claude Code', 'messages', reached)
  if (wires.messages === 'none') return { title, lines: [] }
  const word = shellWord(model)
  const own = [
    `export ANTHROPIC_DEFAULT_HAIKU_MODEL=${word}  # for titles and the like, if the gateway has no Claude`,
    'export CLAUDE_CODE_MAX_CONTEXT_TOKENS=200000  # write its window: Claude Code may not know the model',
  ]
  if (wires.messages === 'direct') {
    const lines = ['# If it is no model of Anthropic, first:', ...own.map((line) => `# ${line}`)]
    return { title, lines: [...lines, `claude --model ${word}`] }
  }
  const search = lossy.includes('hosted_tools')
    ? ['# Its web searches find nothing: they run at Anthropic, and are left out here (hosted_tools).']
    : ['# Its web searches run at Anthropic, and are refused here (hosted_tools): so it has none.']
  return {
    title,
    lines: [
      ...search,
      '# What the model thought comes back to it, sealed. What else is told differently: docs/clients.md',
      ...own,
      `claude --model ${word} --disallowedTools WebSearch`,
    ],
  }
}

/** The losses of a call that Codex makes for a model that it knows by name. */
const KNOWN_MODEL_LOSSES = ['grammar', 'verbosity']

/** Says how Codex reaches a model, what it loses, and what its file has before the provider's table. */
export function codexSection(reached: ReachedModel, provider: readonly string[]): AgentSection {
  const { model, wires, lossy } = reached
  const title = titleOf('Codex', 'responses', reached)
  if (wires.responses === 'none') return { title, lines: [] }
  const refused = KNOWN_MODEL_LOSSES.filter((name) => !lossy.includes(name))
  const own = [`model = ${JSON.stringify(model)}`]
  if (wires.responses === 'translated') {
    own.push(
      ...(lossy.includes('hosted_tools')
        ? ['# Its web search is left out of calls: no provider but OpenAI runs it (hosted_tools).']
        : [
            'web_search = "disabled"  # OpenAI alone runs it: a call that offers it is refused (hosted_tools)',
          ]),
      ...(refused.length === 0
        ? ['# Nothing holds the model to the grammar of a tool (grammar).']
        : [
            `# If it calls the model by a name that it knows, an operator must accept ${refused.join(' and ')}: it then`,
            '# sends tools with a grammar, and says how much to write.',
          ]),
    )
  }
  return { title, lines: ['# in ~/.codex/config.toml, through the sidecar', ...own, ...provider] }
}

function titleOf(client: string, api: AgentApi, { model, wires }: ReachedModel): string {
  const reach = wires[api]
  if (reach === 'direct') return `${client} reaches ${model} directly: nothing is lost`
  if (reach === 'translated')
    return `${client} reaches ${model}, translated: its provider does not speak ${API_TITLES[api]}`
  return `${client} does not reach ${model}: no provider of it speaks ${API_TITLES[api]}, and this gateway does not translate`
}
