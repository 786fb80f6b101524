// node [--import sallyport/register] program.ts NAME URL: one of the modules beside this one as a program.
// Prints what it was told as JSON; where it is refused it ends as any program does whose author did not think
// of that.
import type { Talk } from './talk.ts'

const [name = '', url = ''] = process.argv.slice(2)
// Each of them exports this.
const { talk }: { talk: Talk } = await import(`./${name}.ts`)
process.stdout.write(JSON.stringify(await talk(url)))
