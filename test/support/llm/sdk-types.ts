import { readFileSync } from 'node:fs'

/** Reads the text of types of an SDK: `openai/resources/shared`. */
export const sdkTypes = (path: string): string =>
  readFileSync(new URL(import.meta.resolve(path).replace(/\.m?js$/, '.d.ts')), 'utf8')

/** Lists the members of an interface, by the text of its types. */
export function membersOf(text: string, name: string): readonly string[] {
  const [, indent = '', body = ''] =
    new RegExp(`^( *)(?:export )?interface ${name} (?:extends \\w+ )?\\{\\n([\\s\\S]*?)^\\1\\}`, 'm').exec(
      text,
    ) ?? []
  const members = [...body.matchAll(new RegExp(`^${indent}    (\\w+)\\??:`, 'gm'))].map(
    ([, member = '']) => member,
  )
  if (members.length === 0) throw new Error(`no interface ${name}`)
  return members
}

/** Lists the words for the members of a union, by their `type`. */
export function kindsOf(text: string, union: string): readonly string[] {
  const [, names = ''] = new RegExp(`^export type ${union} = (.*);$`, 'm').exec(text) ?? []
  return names.split(' | ').flatMap((name) => {
    const plain = name.replace(/^.*\./, '')
    const [, body = ''] =
      new RegExp(`^ *(?:export )?interface ${plain} \\{\n([\\s\\S]*?)^ *\\}$`, 'm').exec(text) ?? []
    const [, words = ''] = /^ +type\??: ((?:'[\w.-]+'(?: \| )?)+)(?:null)?;$/m.exec(body) ?? []
    if (words === '') throw new Error(`no type in ${name}`)
    return words.replaceAll("'", '').split(' | ').filter(Boolean)
  })
}
