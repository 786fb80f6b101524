import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openTasks } from '../../../plugins/content/judging.ts'
import { RECOMMENDED_RULES } from '../../../plugins/content/rules.ts'

const PACKAGES = join(import.meta.dirname, '../../../node_modules')
const TEXT = /\.(?:[cm]?js|ts|md|json|ya?ml|txt|py|log|html|css)$/
/** Bytes. */
const MAX_TEXT = 400_000
const WANTED = 10_000
/** Text of secretlint itself is about secrets. */
const ABOUT_SECRETS = /^@secretlint\//

function* textsBelow(folder: string): Generator<string> {
  for (const entry of readdirSync(folder, { withFileTypes: true }).toSorted((a, b) =>
    a.name < b.name ? -1 : 1,
  )) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) yield* textsBelow(path)
    else if (entry.isFile() && TEXT.test(entry.name) && statSync(path).size <= MAX_TEXT) yield path
  }
}

await t.test('of 10,000 texts of ordinary code at most 5 would be refused', async (t) => {
  const { judge } = openTasks({ rules: RECOMMENDED_RULES.map(({ name }) => name), allow: [] })
  const files = [...textsBelow(PACKAGES)].filter(
    (path) => !ABOUT_SECRETS.test(path.slice(PACKAGES.length + 1)),
  )
  const step = Math.max(1, files.length / WANTED)
  const refused: string[] = []
  let judged = 0
  for (let at = 0; at < files.length; at += step) {
    const path = files[Math.floor(at)] ?? ''
    judged += 1
    const found = await judge({ text: readFileSync(path, 'utf8'), isJson: false })
    if (found.length > 0)
      refused.push(`${path.slice(PACKAGES.length + 1)}: ${found.map(({ rule }) => rule).join()}`)
  }
  t.comment(`${judged} texts were judged: ${refused.join('; ')}`)
  t.ok(refused.length <= 5, refused.join('; '))
})
