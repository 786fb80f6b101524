import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Json } from '../gateway.ts'
import { ROOT } from './package-tree.ts'
import { readYaml } from './yaml.ts'

export const CHART = join(ROOT, 'deploy/helm/sallyport')

/** Reads the value of a path such as `admin.port`. */
export const at = (object: Json, path: string): Json =>
  path.split('.').reduce((value, key) => value?.[key], object)

/** Lays values over those of values.yaml, as helm does. */
export const overlaid = (below: Json, above: Json): Json =>
  Object.fromEntries(
    Object.keys({ ...below, ...above }).map((key) => {
      const [a, b] = [below[key], above[key]]
      if (!(key in above)) return [key, a]
      return [key, b !== null && typeof b === 'object' && !Array.isArray(b) ? overlaid(a ?? {}, b) : b]
    }),
  )

/**
 * The settings that the chart always gives a gateway, for machines without helm: those of the template that stand under
 * no condition. Throws where one is written in words that this does not know.
 */
export function settingsOfChart(above: Json): Readonly<Record<string, string>> {
  const values = overlaid(readYaml(join(CHART, 'values.yaml')), above)
  const template = readFileSync(join(CHART, 'templates/deployment.yaml'), 'utf8')
  const [, env = ''] = /^ {10}env:\n([\s\S]*?)envFrom:/m.exec(template) ?? []
  const always = env.replaceAll(/\{\{- (?:if|with|range) [\s\S]*?\{\{- end \}\}\n/g, '')
  const entries = [...always.matchAll(/- name: (\w+)\n +value: "?(.*?)"?\n/g)]
  return Object.fromEntries(
    entries.map(([, name = '', text = '']) => [
      name,
      text.replaceAll(/\{\{ (.*?) \}\}/g, (_, said: string) => {
        const known = /^(join "," |mul )?\.Values\.([\w.]+)(?: (\d+))?(?: \| quote)?$/.exec(said)
        if (known === null) throw new Error(`${name}: ${said}`)
        const [, how, path = '', factor] = known
        const value = at(values, path)
        if (how === 'mul ') return String(value * Number(factor))
        return how === undefined ? String(value) : value.join(',')
      }),
    ]),
  )
}
