/** The names of the configuration file, in the order in which they are looked for. */
export const CONFIG_JSON = 'pawl.config.json';
export const CONFIG_MODULES = ['ts', 'mts', 'cts', 'js', 'mjs', 'cjs'].map((extension) => `pawl.config.${extension}`);
