// The tasks of the thread that judges texts by rules: a text of megabytes takes it long (docs/content.md).
import { lintSource } from '@secretlint/core'
import { secretLintProfiler } from '@secretlint/profiler'
import { rules as PRESET } from '@secretlint/secretlint-rule-preset-recommend'
import { BeginningSearch } from './beginnings.ts'
import { textLevels, unescapeJson } from './escaped-text.ts'
import { jsonStrings } from './json-strings.ts'
import { OWN_RULES, type SecretRuleCreator } from './own-rules.ts'
import { rulesNamed } from './rules.ts'
import { type ContentFinding, mergeFindings } from './verdict.ts'

// It would keep a mark of each text for ever.
secretLintProfiler.setEnabled(false)

export interface JudgingOptions {
  readonly rules: readonly string[]
  /** Values that are no secrets. */
  readonly allow: readonly string[]
}

export interface JudgingTasks {
  /** Finds secrets in the strings of a JSON text, or in a text. UTF-8. */
  readonly judge: (asked: {
    readonly text: Uint8Array | string
    readonly isJson: boolean
  }) => Promise<readonly ContentFinding[]>
  /** Returns the strings of a JSON text, names too; null if they have more than so many characters. */
  readonly texts: (asked: { readonly text: Uint8Array; readonly max: number }) => readonly string[] | null
}

/** A line's end, as it is or escaped: the same secret is read at several levels. */
const BREAKS = /\s|\\+[nr]/g

/** Throws if there is no rule of a name. */
export function openTasks({ rules, allow }: JudgingOptions): JudgingTasks {
  const active = new Set(rules)
  const search = new BeginningSearch(rulesNamed(rules))
  // No text may say itself that it is not to be judged: the preset's rule for such comments is left out.
  const creators = [...PRESET, ...OWN_RULES].filter(({ messages }) =>
    Object.keys(messages).some((name) => active.has(name)),
  )
  const missing = rules.filter((name) => !creators.some(({ messages }) => Object.hasOwn(messages, name)))
  if (missing.length > 0) throw new Error(`the rules of secretlint have no ${missing.join(', ')}`)
  const lint = linter(creators)
  const allowed = new Set(allow)

  /** Counts the different secrets of each rule in a text. */
  async function secretsIn(text: string): Promise<ReadonlyMap<string, number>> {
    const values = new Map<string, Set<string>>()
    for (const reading of textLevels(text)) {
      if (!search.isIn(reading)) continue
      for (const { name, value, isNamed } of await lint(reading))
        if (active.has(name) && !isNamed(allowed))
          values.set(name, (values.get(name) ?? new Set()).add(value.replace(BREAKS, '')))
    }
    return new Map([...values].map(([name, found]) => [name, found.size]))
  }

  async function judge(text: string, isJson: boolean): Promise<readonly ContentFinding[]> {
    const parts = isJson ? jsonStrings(text) : [{ written: text, where: 'text' }]
    const findings: ContentFinding[] = []
    for (const { written, where } of parts)
      for (const [rule, count] of await secretsIn(written)) findings.push({ rule, where, count })
    return mergeFindings(findings)
  }

  return {
    judge: ({ text, isJson }) => judge(textOf(text), isJson),
    texts: ({ text, max }) => {
      const found: string[] = []
      let length = 0
      for (const { written } of jsonStrings(textOf(text))) {
        length += written.length
        if (length > max) return null
        if (written !== '') found.push(unescapeJson(written))
      }
      return found
    },
  }
}

const textOf = (text: Uint8Array | string): string =>
  typeof text === 'string' ? text : Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString()

interface LintedSecret {
  readonly name: string
  readonly value: string
  /** Tells whether one of these is the secret itself. */
  readonly isNamed: (values: ReadonlySet<string>) => boolean
}

function linter(creators: readonly SecretRuleCreator[]) {
  const rules = creators.map((rule) => ({
    id: rule.meta.id,
    rule,
    // Ids of keys, which are off in the preset.
    options: rule.meta.id.endsWith('-aws') ? { enableIDScanRule: true } : {},
  }))
  return async (content: string): Promise<readonly LintedSecret[]> => {
    const source = { content, filePath: 'text', ext: '', contentType: 'text' as const }
    const { messages } = await lintSource({ source, options: { config: { rules }, noPhysicFilePath: true } })
    return messages.map(({ messageId, range: [start, end], data }) => {
      const value = content.slice(start, end)
      const named = [value, ...Object.values(data ?? {})]
      return {
        name: messageId.startsWith('TAILSCALE_') ? 'TAILSCALE_KEY' : messageId,
        value,
        isNamed: (values) => named.some((one) => typeof one === 'string' && values.has(one)),
      }
    })
  }
}
