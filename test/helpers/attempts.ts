import { dirname } from 'node:path';

/** All that a program could try on a name: none of it may succeed, and one try does not stop the next. */
export const attempts = (path: string): string => {
  const [folder, name] = [dirname(path), path.split('/').at(-1)];
  return [
    `mkdir -p ${folder}`,
    `echo evil > ${path}`,
    `echo evil >> ${path}`,
    `chmod 777 ${path}`,
    `echo evil > evil; mv -f evil ${path}`,
    `echo evil > evil; mv -fT evil ${path}`,
    `echo evil > evil; cp -f evil ${path}`,
    `echo evil > evil; ln -f evil ${path}`,
    `ln -sfT evil ${path}`,
    `ln -f ${path} hard && echo evil > hard`,
    `ln -sf ${path} soft && echo evil > soft`,
    `rm -rf ${path}`,
    `mkdir -p ${path}`,
    `mkdir -p ${path}/new && echo evil > ${path}/new/file`,
    `mv ${path} moved`,
    `echo evil > ${path}.tmp && mv -f ${path}.tmp ${path}`,
    ...(folder === '.' ? [] : [`mv -T ${folder} moved-folder && mkdir -p ${folder} && echo evil > ${folder}/${name}`]),
    'true',
  ].join('\n');
};
